"""What makes a site of pages that are written for GitHub: no page exists twice, and links are written once.

README.md becomes the first page, CHANGELOG.md and each program in examples/ a page of its own. A link to any of them,
from wherever, leads to that page. `<!-- reference: redlock_async.Redlock -->`, which GitHub does not show, becomes what
mkdocstrings makes of the docstrings.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"} | {
    f"examples/{program.name}": f"examples/{program.stem}.md" for program in sorted((ROOT / "examples").glob("*.py"))
}
"""Files outside docs/ that are pages, by their path in the repository."""

FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?!https?:|#)(?P<path>[^)#\s]+)")
REFERENCE = re.compile(r"^<!-- reference: (?P<name>[\w.]+)(?:, with (?P<more>[\w ]+))? -->$", re.MULTILINE)
MORE = {
    "its constructor": "merge_init_into_class",
    "what it inherits": "inherited_members",
    "its bases": "show_bases",
}
"""What a reference may have besides: the option of mkdocstrings for it."""

PART = re.compile(r"(?P<before><p>|\n)(?P<part>Guarantee|What can break it|Cost|Cancellation): ")
"""The four parts of a lock's docstring, each of which begins a line."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the examples at the end of the navigation."""
    if config.nav is not None:
        config.nav.append({"Examples": [page for page in PAGES.values() if page.startswith("examples/")]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        if source.endswith(".py"):
            text = f"# {Path(source).name}\n\n```python\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs calls it so
    """Have the links lead to pages of the site, and put the reference where it is wanted."""
    here = page.file.src_uri
    source = next((source for source, name in PAGES.items() if name == here), f"docs/{here}")
    if source.endswith(".py"):
        return markdown

    def lead(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["path"]))
        on_site = PAGES.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(on_site, posixpath.dirname(here) or ".")

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):  # code stays as it is
        parts += [LINK.sub(lead, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    markdown = "".join([*parts, LINK.sub(lead, markdown[end:])])
    return REFERENCE.sub(directive, markdown)


def directive(reference: re.Match[str]) -> str:
    """What mkdocstrings puts the docstrings of a name for."""
    more = f"\n    options:\n      {MORE[reference['more']]}: true" if reference["more"] else ""
    return f"::: {reference['name']}{more}"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs calls it so
    """In the reference, give each part of a docstring a paragraph of its own."""
    if page.file.src_uri != "api.md":
        return html
    return PART.sub(lambda found: f"{'<p>' if found['before'] == '<p>' else '</p><p>'}<em>{found['part']}:</em> ", html)
