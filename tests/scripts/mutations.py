"""Every small change of a script: a statement removed, a condition always true or false, a part of a condition removed,
a comparison off by one, a number off by one."""

import re

STATEMENT = re.compile(r"redis\.p?call\(|[\w.\[\]# +]+ = ")
CONDITION = re.compile(r"(if|elseif|while) (.*?) (then|do)\b(.*)$")
NUMBER = re.compile(r"(?<![\w.%])\d+(?![\w.])")
BOUNDARIES = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > "}
OTHERS = {"math.max": "math.min", "math.min": "math.max", "'NX', ": "", "'XX', ": "", "not ": ""}


def mutations(source):
    """Yield a description of each change, with the changed and the old line, and the changed source."""
    lines = source.split("\n")
    for number, line in enumerate(lines):
        code = line.strip()
        if code.startswith("--"):
            continue
        indent = line.removesuffix(line.lstrip())
        for instead in _of_line(code):
            changed = [*lines[:number], indent + instead, *lines[number + 1 :]]
            yield f"{instead or '(left out)'} -- line {number + 1}: {code}", "\n".join(changed)


def _of_line(code):
    if STATEMENT.match(code) and balanced(code):
        yield ""
    if match := CONDITION.match(code):
        keyword, condition, then, rest = match.groups()
        always = ["true"] if keyword != "while" else []
        for other in [*always, "false", *_of_condition(condition)]:
            yield f"{keyword} {other} {then}{rest}"
    for match in NUMBER.finditer(code):
        yield f"{code[: match.start()]}{int(match[0]) + 1}{code[match.end() :]}"
    for old, new in OTHERS.items():
        if old in code:
            yield code.replace(old, new, 1)


def _of_condition(condition):
    for old, new in BOUNDARIES.items():
        if condition.count(old) == 1:
            yield condition.replace(old, new)
    for word in (" and ", " or "):
        parts = condition.split(word)
        if len(parts) > 1 and all(map(balanced, parts)):
            for number in range(len(parts)):
                yield word.join(parts[:number] + parts[number + 1 :])


def balanced(code):
    """Return whether all brackets in the code are closed."""
    return all(code.count(left) == code.count(right) for left, right in ("()", "{}", "[]"))
