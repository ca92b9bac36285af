"""Build the site from pages that are written for GitHub, without duplicate pages or links.

README.md becomes the first page; CHANGELOG.md and each program in examples/ become separate pages. Links to them from
any page lead to those pages. `<!-- reference: redlock_async.Redlock -->`, which GitHub does not show, is replaced by
the output of mkdocstrings.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "examples/README.md": "examples/index.md",
} | {f"examples/{program.name}": f"examples/{program.stem}.md" for program in sorted((ROOT / "examples").glob("*.py"))}
"""Pages from files outside docs/, by their path in the repository."""

FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?!https?:|#)(?P<path>[^)#\s]+)")
REFERENCE = re.compile(r"^<!-- reference: (?P<name>[\w.]+)(?:, with (?P<more>[\w ]+))? -->$", re.MULTILINE)
PICTURE = re.compile(
    r'^<picture>\n  <source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\n'
    r'  <img src="(?P<light>[^"]+)" alt="(?P<alt>[^"]+)">\n</picture>$',
    re.MULTILINE,
)
"""A picture as GitHub shows it: by the theme of the system. The site has a switch of its own."""

MORE = {
    "its constructor": "merge_init_into_class",
    "what it inherits": "inherited_members",
    "its bases": "show_bases",
}
"""Additions to a reference, with their mkdocstrings option."""

SHORT_CODE = re.compile(r"<code>([^<]{1,22})</code>")
"""Such as `--takeover-delay S`, which a browser would break after the hyphens."""
PART = re.compile(r"(?P<before><p>|\n)(?P<part>Guarantee|What can break it|Cost|Cancellation): ")
"""The four parts of a lock's docstring, each at the start of a line."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the examples at the end of the navigation."""
    if config.nav is not None:
        config.nav.append({"Examples": [page for page in PAGES.values() if page.startswith("examples/")]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        if source.endswith(".py"):
            text = f"# {Path(source).name}\n\n```python\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs passes all arguments by name
    """Rewrite links to pages of the site, and insert the reference."""
    here = page.file.src_uri
    source = next((source for source, name in PAGES.items() if name == here), f"docs/{here}")
    if source.endswith(".py"):
        return markdown

    def moved(path: str) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        page_path = PAGES.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(page_path, posixpath.dirname(here) or ".")

    def on_site(link: re.Match[str]) -> str:
        return moved(link["path"])

    def both_themes(picture: re.Match[str]) -> str:
        shown = (
            f'<img class="{theme}" src="{moved(picture[theme])}" alt="{picture["alt"]}">' for theme in ("light", "dark")
        )
        return f'<p class="picture">{"".join(shown)}</p>'

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):  # code stays unchanged
        parts += [LINK.sub(on_site, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    markdown = PICTURE.sub(both_themes, "".join([*parts, LINK.sub(on_site, markdown[end:])]))
    return REFERENCE.sub(directive, markdown)


def directive(reference: re.Match[str]) -> str:
    """Return the mkdocstrings directive for a reference."""
    more = f"\n    options:\n      {MORE[reference['more']]}: true" if reference["more"] else ""
    return f"::: {reference['name']}{more}"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs passes all arguments by name
    """Keep short code on one line; in the reference, put each part of a docstring into its own paragraph."""
    html = SHORT_CODE.sub(r'<code class="short">\1</code>', html)
    if page.file.src_uri != "api.md":
        return html
    return PART.sub(lambda found: f"{'<p>' if found['before'] == '<p>' else '</p><p>'}<em>{found['part']}:</em> ", html)
