"""PromQL read without a server, as far as the dashboard and the alerts use it: what does not parse here is a mistake.

Of a query it keeps what can be held against the exporter: which metrics, with which labels.
"""

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<duration>\d+[smhd]|\$__rate_interval)|(?P<number>\d+(?:\.\d+)?)"""
    r"""|(?P<word>[a-zA-Z_:][\w:]*)|(?P<mark>=~|!~|!=|==|<=|>=|[-+*/(){}\[\],=<>]))"""
)
OVER_RANGES = {"rate", "increase"}
AGGREGATES = {"sum", "min", "max"}
LOOSEST_FIRST = (("and",), ("==", "!=", "<", ">", "<=", ">="), ("+", "-"), ("*", "/"))


@dataclass
class Selector:
    """One choice of series."""

    metric: str
    matchers: list[tuple[str, str, str]] = field(default_factory=list)
    ranged: bool = False


class Query:
    """A query that was read to its end."""

    def __init__(self, text):
        self.tokens, self.at, self.selectors, self.grouped = [], 0, [], []
        position = 0
        while text[position:].strip():
            found = TOKEN.match(text, position)
            if found is None:
                raise SyntaxError(f"unknown character in {text!r} at {text[position:]!r}")
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            position = found.end()
        self._binary(0)
        if self.at != len(self.tokens):
            raise SyntaxError(f"{text!r}: nothing should follow, but {self.tokens[self.at :]} does")

    @property
    def next(self):
        return self.tokens[self.at][1] if self.at < len(self.tokens) else None

    def _take(self, *wanted):
        kind, value = self.tokens[self.at] if self.at < len(self.tokens) else ("end", None)
        if value not in wanted and kind not in wanted:
            raise SyntaxError(f"{wanted} was expected, not {value!r}, after {self.tokens[: self.at]}")
        self.at += 1
        return value

    def _binary(self, level):
        if level == len(LOOSEST_FIRST):
            self._operand()
            return
        self._binary(level + 1)
        while self.next in LOOSEST_FIRST[level]:
            self.at += 1
            self._binary(level + 1)

    def _operand(self):
        if self.next == "(":
            self._arguments(1)
        elif self.tokens[self.at][0] == "number":
            self.at += 1
        elif self.next in AGGREGATES:
            self.at += 1
            if self.next == "by":
                self.at += 1
                self.grouped += self._list("word")
            self._arguments(1)
        elif self.next == "histogram_quantile":
            self.at += 1
            first = len(self.selectors)
            self._arguments(2)
            if not all(each.metric.endswith("_bucket") for each in self.selectors[first:]) or "le" not in self.grouped:
                raise SyntaxError("a quantile is of buckets, by le")
        elif self.next in OVER_RANGES:
            self.at += 1
            first = len(self.selectors)
            self._arguments(1)
            if not all(each.ranged for each in self.selectors[first:]):
                raise SyntaxError("a rate is over a range")
        else:
            self._selector()

    def _arguments(self, number):
        self._take("(")
        for argument in range(number):
            if argument:
                self._take(",")
            self._binary(0)
        self._take(")")

    def _list(self, kind):
        self._take("(")
        words = [self._take(kind)]
        while self.next == ",":
            self.at += 1
            words.append(self._take(kind))
        self._take(")")
        return words

    def _selector(self):
        selector = Selector(self._take("word"))
        self.selectors.append(selector)
        if self.next == "{":
            self.at += 1
            while self.next != "}":
                matcher = (self._take("word"), self._take("=", "!=", "=~", "!~"), self._take("string")[1:-1])
                selector.matchers.append(matcher)
                if self.next != "}":
                    self._take(",")
            self._take("}")
        if self.next == "[":
            self.at += 1
            self._take("duration")
            self._take("]")
            selector.ranged = True
