"""Every option, checked once and together, each with what raising or lowering it costs."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Final, TypedDict

from ._errors import ConfigurationError, shown
from ._quorum import validity

Duration = float | timedelta


class Default(Enum):
    """Stands for 'as the client was configured' where None already means something."""

    DEFAULT = "default"


DEFAULT: Final = Default.DEFAULT

SHORTEST_TTL = 0.01
"""Below this a lease is over before five servers on one machine have answered."""

LONGEST_TTL = 366 * 24 * 3600.0

LONGEST = 100 * LONGEST_TTL
"""Of any other duration: what the servers' clocks can count, and more than anybody means."""

GRACE = 0.25
"""Seconds before the end of its validity at which a body is cancelled, so that its cleanup runs inside it."""


def seconds(option: str, value: object) -> float:
    """A duration as float seconds, or a ConfigurationError that names the option."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{option} is a number of seconds or a timedelta, not {shown(value)}"
        raise ConfigurationError(msg)
    number = _float(value)
    if not math.isfinite(number):
        hint = "; None waits for ever" if option in {"wait", "timeout"} else ""
        raise ConfigurationError(f"{option} must be finite, not {shown(value)}{hint}")
    return number


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def positive(option: str, value: object) -> float:
    """A duration that is one, and that the servers' clocks can count."""
    number = seconds(option, value)
    if not 0 < number <= LONGEST:
        msg = f"{option} must be more than 0 seconds and at most 36,600 days, not {shown(value)}"
        raise ConfigurationError(msg)
    return number


def _wait(value: object, option: str = "wait") -> float | None:
    if value is None:
        return None
    number = seconds(option, value)
    if number < 0:
        msg = f"{option} must not be negative ({shown(value)}): 0 tries once, None waits for ever"
        raise ConfigurationError(msg)
    return number


def checked_ttl(value: object, drift_factor: float) -> float:
    """A lease length, or a ConfigurationError."""
    ttl = seconds("ttl", value)
    if not SHORTEST_TTL <= ttl <= LONGEST_TTL:
        msg = (
            f"ttl must be from {SHORTEST_TTL} seconds to 366 days, not {shown(value)}; nothing here is in milliseconds"
        )
        raise ConfigurationError(msg)
    if validity(ttl, drift_factor) <= 0:
        msg = f"ttl={ttl} leaves nothing after the drift allowance (drift_factor={drift_factor}): raise ttl"
        raise ConfigurationError(msg)
    return ttl


def flag(option: str, value: object) -> bool:
    """True or False, or a ConfigurationError that names the option."""
    if not isinstance(value, bool):
        msg = f"{option} is True or False, not {shown(value)}"
        raise ConfigurationError(msg)
    return value


class HoldOptions(TypedDict, total=False):
    """What every kind of lock takes, by name. What is not given is as the client was configured, or as said here."""

    ttl: Duration | None
    """Lease length, renewed while it is held: how long the lock is blocked when its holder dies. Not given, or None:
    the client's."""
    wait: Duration | Default | None
    """How long acquiring waits; 0 tries once, None waits for ever. Not given: the client's."""
    fencing: bool | None
    """Whether leases carry a fencing token. Not given, or None: as the client's."""
    renew: bool
    """Whether the lease is renewed while it is held. True, if not given; False: it ends after `ttl`."""
    max_hold: Duration | None
    """How long after it was acquired renewal stops, and the body is cancelled. Not given, or None: never."""
    hold_at_least: Duration
    """For how long after it was acquired the name stays locked, however quick the body is. 0.0, if not given."""


class LockOptions(HoldOptions, total=False):
    """What the plain lock takes, by name, and so does `Redlock.locked`: what every kind does, and one more."""

    reentrant: bool
    """Whether the task that holds it may enter again. False, if not given."""


def check_names(who: str, given: Mapping[str, object], known: Mapping[str, object], hint: str = "") -> None:
    """Raise TypeError for an option that there is not, as any function does; but say which there are."""
    if unknown := sorted(given.keys() - known):
        raise TypeError(f"{who} takes {', '.join(known)}, and no {', '.join(unknown)}{hint}")


@dataclass(frozen=True, slots=True)
class Options:
    """What may differ from lock to lock."""

    ttl: float
    """Lease length. Longer: a crashed holder blocks others for longer. Shorter: more renewals, and less time to ride
    out a pause or a fault before the lease is lost."""
    wait: float | None
    """How long acquire waits; 0 tries once, None waits for ever."""
    fencing: bool
    """Whether leases carry a fencing token. Off saves the registers' work on the nodes, not a round trip."""
    renew: bool = True
    """Whether a held lease is renewed. Off: it ends after ttl, whatever the holder does."""
    max_hold: float | None = None
    """Renewal stops there. None: a body that never ends holds for ever."""
    hold_at_least: float = 0.0
    """The name stays locked for at least this long after it was acquired, however quick the body was, and though
    max_hold ended it."""
    reentrant: bool = False
    """Whether the task that holds it may enter again."""
    retry_failed: bool = False
    """Whether a body that raises frees the name at once: hold_at_least is then for those that end well."""

    def with_overrides(
        self,
        *,
        drift_factor: float,
        ttl: Duration | None = None,
        wait: Duration | Default | None = DEFAULT,
        fencing: bool | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        hold_at_least: Duration = 0.0,
        reentrant: bool = False,
    ) -> Options:
        """These options with the call's own, each checked."""
        hold = seconds("hold_at_least", hold_at_least)
        if not 0 <= hold <= LONGEST:
            msg = f"hold_at_least must be from 0 seconds to 36,600 days, not {shown(hold_at_least)}"
            raise ConfigurationError(msg)
        return Options(
            ttl=self.ttl if ttl is None else checked_ttl(ttl, drift_factor),
            wait=self.wait if wait is DEFAULT else _wait(wait),
            fencing=self.fencing if fencing is None else flag("fencing", fencing),
            renew=flag("renew", renew),
            max_hold=None if max_hold is None else positive("max_hold", max_hold),
            hold_at_least=hold,
            reentrant=flag("reentrant", reentrant),
        )

    def waiting(self, wait: Duration | Default | None, option: str = "wait") -> Options:
        """The same with another wait, which the caller gave as that argument."""
        return self if wait is DEFAULT else replace(self, wait=_wait(wait, option))


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for a whole client."""

    options: Options
    node_timeout: float
    """One command on one node. Longer: a hung node delays the few rounds that find it hung. Shorter: a node that is
    merely slow is counted as failed."""
    retry_delay: float
    """Upper end of the jittered pause between attempts where nothing wakes us earlier. Longer: fewer commands on the
    nodes. Shorter: a freed lock is noticed sooner by clients without tracking."""
    drift_factor: float
    """By how much clock rates may differ. Larger: less of each lease is usable. Smaller than the truth: unsafe."""
    namespace: str
    """Prefixed to every key."""
    owner: str
    """Label shown to operators and in other clients' errors."""
    strict_restart: bool
    """Whether even a wholly fresh cluster must wait out one ttl before it votes."""

    @classmethod
    def checked(
        cls,
        *,
        ttl: Duration,
        wait: Duration | None,
        node_timeout: Duration,
        retry_delay: Duration,
        drift_factor: float,
        fencing: bool,
        namespace: str,
        owner: str | None,
        strict_restart: bool,
    ) -> Settings:
        """The settings, or one ConfigurationError that says what to change."""
        number = isinstance(drift_factor, int | float) and not isinstance(drift_factor, bool)
        drift = _float(drift_factor) if number else math.nan
        if not 0 <= drift <= 0.5:  # noqa: PLR2004 - half of every lease lost to drift is nobody's intention
            raise ConfigurationError(f"drift_factor is a fraction from 0 to 0.5, not {shown(drift_factor)}")
        if not isinstance(namespace, str):
            raise ConfigurationError(f"namespace is a str, not {shown(namespace)}")
        if not _is_text(namespace):
            raise ConfigurationError(f"namespace must be valid text, without lone surrogates: {shown(namespace)}")
        label = f"{socket.gethostname()}:{os.getpid()}" if owner is None else owner
        if not isinstance(label, str) or not label or len(label) > 200 or not label.isprintable():  # noqa: PLR2004 - as the message says
            msg = f"owner is a printable label of 1 to 200 characters, not {shown(owner)}"
            raise ConfigurationError(msg)
        return cls(
            options=Options(ttl=checked_ttl(ttl, drift), wait=_wait(wait), fencing=flag("fencing", fencing)),
            node_timeout=positive("node_timeout", node_timeout),
            retry_delay=positive("retry_delay", retry_delay),
            drift_factor=drift,
            namespace=namespace,
            owner=label,
            strict_restart=flag("strict_restart", strict_restart),
        )


_DURATIONS = {"ttl", "wait", "node_timeout", "retry_delay", "drift_factor"}
_FLAGS = {"fencing", "strict_restart"}
_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
ENVIRONMENT = (*sorted(_DURATIONS), *sorted(_FLAGS), "namespace", "owner")


def _text(environ: Mapping[str, str], variable: str) -> str:
    text = environ.get(variable, "")
    if not isinstance(text, str):
        raise ConfigurationError(f"{variable} is a text, not {shown(text)}")
    return text.strip()


def _nodes(environ: Mapping[str, str]) -> list[str]:
    nodes = [url.strip() for url in _text(environ, "REDLOCK_NODES").split(",") if url.strip()]
    if not nodes:
        msg = (
            "REDLOCK_NODES is not set: give it the masters' URLs, separated by commas, "
            "such as REDLOCK_NODES=redis://10.0.0.1:6379,redis://10.0.0.2:6379,redis://10.0.0.3:6379"
        )
        raise ConfigurationError(msg)
    for number, url in enumerate(nodes, 1):
        if url.count("://") > 1 or any(map(str.isspace, url)):
            raise ConfigurationError(f"URL {number} of REDLOCK_NODES is more than one: they are separated by commas")
    return nodes


def from_environment(environ: Mapping[str, str]) -> tuple[list[str], dict[str, Any]]:
    """The nodes and options given as REDLOCK_... variables; empty ones count as not given."""
    if not isinstance(environ, Mapping):
        raise ConfigurationError(f"the environment is a mapping of names to texts, not {shown(environ)}")
    nodes = _nodes(environ)
    given: dict[str, Any] = {}
    for option in ENVIRONMENT:
        variable = f"REDLOCK_{option.upper()}"
        text = _text(environ, variable)
        if not text:
            continue
        if option in _FLAGS:
            if text.lower() not in _WORDS:
                msg = f"{variable} is true or false, not {shown(text)}"
                raise ConfigurationError(msg)
            given[option] = _WORDS[text.lower()]
        elif option == "wait" and text.lower() in {"none", "forever"}:
            given[option] = None
        elif option in _DURATIONS:
            try:
                given[option] = float(text)
            except ValueError:
                what = "a fraction from 0 to 0.5" if option == "drift_factor" else "a number of seconds"
                raise ConfigurationError(f"{variable} is {what}, not {shown(text)}") from None
        else:
            given[option] = text
    return nodes, given
