"""All options, each documented with what a larger or smaller value costs, and checked in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Final, TypedDict

from redlock_async.errors import ConfigurationError, short_repr

from .lease_timing import validity
from .quorum import majority
from .token import LONGEST_OWNER

Duration = float | timedelta


class Default(Enum):
    """Stands for "as the client was configured", where None already has a meaning."""

    DEFAULT = "default"


DEFAULT: Final = Default.DEFAULT

SHORTEST_TTL = 0.01
"""Seconds; a shorter lease ends before five nodes on one machine have replied."""

SUSPICIOUS_TTL = 3600.0
"""Seconds."""

LONGEST_TTL = 24 * 3600.0
"""Seconds, with the takeover delay: a node that loses its data may have to be quarantined for as long (`voting`)."""

LONGEST = 36_600 * 24 * 3600.0
"""The limit of any other duration, in seconds: servers can count that far, and no use needs more."""

GRACE = 0.25
"""How many seconds before the end of the lease the block is cancelled, so that its cleanup still runs inside it."""


def seconds(option: str, value: object) -> float:
    """Return a duration in seconds; raise ConfigurationError if it is not one."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        remedy = ". To try once, use try_acquire()" if option == "wait" and value is False else ""
        msg = f"{option} must be a number of seconds or a timedelta, got {short_repr(value)}{remedy}"
        raise ConfigurationError(msg)
    number = _float(value)
    if not math.isfinite(number):
        remedy = ". None waits without limit" if option in {"wait", "timeout"} else ""
        raise ConfigurationError(f"{option} must be finite, got {short_repr(value)}{remedy}")
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
    """Return a duration in seconds that is positive and that servers can count; raise ConfigurationError otherwise."""
    number = seconds(option, value)
    if not 0 < number <= LONGEST:
        msg = f"{option} must be more than 0 seconds and at most 36,600 days, got {short_repr(value)}"
        raise ConfigurationError(msg)
    return number


def _wait(value: object, option: str = "wait") -> float | None:
    if value is None:
        return None
    number = seconds(option, value)
    if number < 0:
        msg = f"{option} must not be negative, got {short_repr(value)}: 0 tries once, None waits without limit"
        raise ConfigurationError(msg)
    return number


def is_suspicious_ttl(ttl: float) -> bool:
    """Whether a ttl is probably a mistake: milliseconds, or the duration of the block."""
    # A whole number of 1,000 s is rarely intended: it is more likely 1, 2 or 3 s in milliseconds.
    return ttl >= SUSPICIOUS_TTL or (ttl > 0 and not ttl % 1000)


def checked_ttl(value: object, drift_factor: float, takeover_delay: float = 0.0) -> float:
    """Return the length of a lease in seconds; raise ConfigurationError if it is out of range."""
    ttl = seconds("ttl", value)
    if not SHORTEST_TTL <= ttl <= LONGEST_TTL:
        limits = f"from {SHORTEST_TTL} seconds to 24 hours"
        msg = f"ttl must be {limits}, got {short_repr(value)}. Durations are in seconds, and a held lease is renewed"
        raise ConfigurationError(msg)
    if ttl + takeover_delay > LONGEST_TTL:
        msg = f"ttl and takeover_delay together must be at most 24 hours, got {ttl:g} s and {takeover_delay:g} s"
        raise ConfigurationError(msg)
    if validity(ttl, drift_factor) <= 0:
        msg = f"ttl={ttl} is used up by the drift allowance (drift_factor={drift_factor}). Increase ttl"
        raise ConfigurationError(msg)
    return ttl


def checked_value(value: object) -> str:
    """Return the value of a candidate; raise ConfigurationError if it cannot be stored."""
    if not isinstance(value, str) or not _is_text(value) or len(value.encode()) > LONGEST_OWNER:
        raise ConfigurationError(
            f"value must be text of at most {LONGEST_OWNER} bytes, without lone surrogates, got {short_repr(value)}"
        )
    return value


def _whole(option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"{option} must be a whole number, got {short_repr(value)}")
    return value


def flag(option: str, value: object) -> bool:
    """Return the value if it is True or False; raise ConfigurationError otherwise."""
    if not isinstance(value, bool):
        msg = f"{option} must be True or False, got {short_repr(value)}"
        raise ConfigurationError(msg)
    return value


class HoldOptions(TypedDict, total=False):
    """The keyword options of every kind of lock. The defaults are the client's, or as documented here."""

    ttl: Duration | None
    """Length of the lease, which is renewed while it is held: for how long a holder that dies blocks the name.
    Default, or None: the client's."""
    wait: Duration | Default | None
    """How long to wait for the lock; 0 tries once, None waits without limit. Default: the client's."""
    fencing: bool | None
    """Whether leases carry a fencing token. Default, or None: the client's."""
    renew: bool
    """Whether the lease is renewed while it is held. If False, it ends after `ttl`. Default: True."""
    max_hold: Duration | None
    """How long after acquiring renewal stops and the block is cancelled. Default, or None: no limit."""
    min_hold: Duration
    """How long after acquiring the name stays locked at least, even if the block ends earlier. Default: 0."""
    takeover_delay: Duration
    """How long the name stays locked after a holder that crashed or lost its lease; a release frees it at once.
    Default: 0."""


class LockOptions(HoldOptions, total=False):
    """The keyword options of the plain lock and of `Redlock.locked`: those of every kind, and `reentrant`."""

    reentrant: bool
    """Whether the task that holds the lock may enter it again. Default: False."""


REDIS_PY_NAMES = {"timeout": "ttl", "blocking_timeout": "wait"}
"""Options of redis-py's lock, and what they are called here."""


def check_names(subject: str, given: Mapping[str, object], known: Mapping[str, object], hint: str = "") -> None:
    """Raise TypeError for an unknown option, and list the valid ones; `subject` is what has them, such as "a lock"."""
    if unknown := sorted(given.keys() - known):
        names = ", ".join(
            f"{name!r} (its name here is {REDIS_PY_NAMES[name]})" if name in REDIS_PY_NAMES else repr(name)
            for name in unknown
        )
        raise TypeError(f"{subject} has no option {names}. Valid options: {', '.join(known)}{hint}")


@dataclass(frozen=True, slots=True)
class Options:
    """The options that can differ from lock to lock."""

    ttl: float
    """Length of a lease. Longer: a crashed holder blocks others for longer. Shorter: more renewals, and less time to
    survive a pause or a fault before the lease is lost."""
    wait: float | None
    """How long acquire waits; 0 tries once, None waits without limit."""
    fencing: bool
    """Whether leases carry a fencing token. Without it the nodes save the work of the registers, but no round trip."""
    renew: bool = True
    """Whether a held lease is renewed. If not, it ends after ttl."""
    max_hold: float | None = None
    """Renewal stops this long after acquiring. None: a block that never ends holds the lock without limit."""
    min_hold: float = 0.0
    """The name stays locked for at least this long after acquiring, even if the block ends earlier or is cancelled by
    max_hold."""
    takeover_delay: float = 0.0
    """How long the name stays locked after the end of a lease that was not released: what a holder has sent by then
    has this time to arrive. Longer: a crashed holder blocks others for longer."""
    reentrant: bool = False
    """Whether the task that holds the lock may enter it again."""
    label: str | None = None
    """What the token says instead of the owner label; None for the owner label."""
    retry_failed: bool = False
    """Whether a block that raises frees the name immediately; min_hold then only applies to blocks that succeed."""

    def with_overrides(
        self,
        *,
        drift_factor: float,
        ttl: Duration | None = None,
        wait: Duration | Default | None = DEFAULT,
        fencing: bool | None = None,
        renew: bool = True,
        max_hold: Duration | None = None,
        min_hold: Duration = 0.0,
        takeover_delay: Duration = 0.0,
        reentrant: bool = False,
    ) -> Options:
        """Return these options, changed by one call's; raise ConfigurationError for an invalid one."""
        hold = seconds("min_hold", min_hold)
        if not 0 <= hold <= LONGEST:
            msg = f"min_hold must be from 0 seconds to 36,600 days, got {short_repr(min_hold)}"
            raise ConfigurationError(msg)
        delay = seconds("takeover_delay", takeover_delay)
        if not 0 <= delay <= LONGEST_TTL:
            msg = f"takeover_delay must be from 0 seconds to 24 hours, got {short_repr(takeover_delay)}"
            raise ConfigurationError(msg)
        return Options(
            ttl=checked_ttl(self.ttl if ttl is None else ttl, drift_factor, delay),
            wait=self.wait if wait is DEFAULT else _wait(wait),
            fencing=self.fencing if fencing is None else flag("fencing", fencing),
            renew=flag("renew", renew),
            max_hold=None if max_hold is None else positive("max_hold", max_hold),
            min_hold=hold,
            takeover_delay=delay,
            reentrant=flag("reentrant", reentrant),
        )

    def waiting(self, wait: Duration | Default | None, option: str = "wait") -> Options:
        """Return these options with another wait, checked under the name of the argument that passed it."""
        return self if wait is DEFAULT else replace(self, wait=_wait(wait, option))


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a whole client."""

    options: Options
    node_timeout: float
    """Timeout of one command on one node. Longer: a hung node delays the few rounds that detect it for longer.
    Shorter: a node that is only slow counts as failed."""
    retry_delay: float
    """Maximum of the jittered pause between attempts, where nothing wakes the client earlier. Longer: fewer commands on
    the nodes. Shorter: clients without tracking notice a freed lock sooner."""
    drift_factor: float
    """By how much clock rates may differ. Larger: less of each lease is usable. Smaller than the real rate: unsafe."""
    namespace: str
    """Prefix of every key."""
    owner: str
    """Label of this client in operator output and in other clients' errors."""
    strict_restart: bool
    """Whether even a new cluster must wait one ttl before its nodes vote."""
    quorum: int | None
    """How many nodes must grant a lock; None: a majority. Larger: more nodes may lose their data at once without a
    second holder, and fewer may be down."""

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
        owner: str,
        strict_restart: bool,
        quorum: int | None,
    ) -> Settings:
        """Return the settings; raise ConfigurationError for an invalid one."""
        number = isinstance(drift_factor, int | float) and not isinstance(drift_factor, bool)
        drift = _float(drift_factor) if number else math.nan
        if not 0 <= drift <= 0.5:  # noqa: PLR2004 - a larger factor would waste half of every lease
            raise ConfigurationError(f"drift_factor must be a fraction from 0 to 0.5, got {short_repr(drift_factor)}")
        if not isinstance(namespace, str):
            raise ConfigurationError(f"namespace must be a str, got {short_repr(namespace)}")
        if not _is_text(namespace):
            raise ConfigurationError(f"namespace must be text without lone surrogates, got {short_repr(namespace)}")
        if not (isinstance(owner, str) and owner.isprintable() and 0 < len(owner.encode()) <= LONGEST_OWNER):
            msg = f"owner must be a printable label of 1 to {LONGEST_OWNER} bytes, got {short_repr(owner)}"
            raise ConfigurationError(msg)
        return cls(
            options=Options(ttl=checked_ttl(ttl, drift), wait=_wait(wait), fencing=flag("fencing", fencing)),
            node_timeout=positive("node_timeout", node_timeout),
            retry_delay=positive("retry_delay", retry_delay),
            drift_factor=drift,
            namespace=namespace,
            owner=owner,
            strict_restart=flag("strict_restart", strict_restart),
            quorum=None if quorum is None else _whole("quorum", quorum),
        )

    def quorum_of(self, nodes: int) -> int:
        """Return how many of that many nodes must grant a lock; raise ConfigurationError if that is no quorum."""
        least = majority(nodes)
        quorum = least if self.quorum is None else self.quorum
        if quorum < least:
            got = short_repr(quorum)
            msg = f"quorum must be at least {least} of {nodes} nodes, got {got}: fewer could elect two holders"
            raise ConfigurationError(msg)
        if quorum > nodes:
            raise ConfigurationError(f"quorum must be at most {nodes}, the number of nodes, got {short_repr(quorum)}")
        return quorum


_NUMBERS: dict[str, type[float]] = {
    **dict.fromkeys(("ttl", "wait", "node_timeout", "retry_delay", "drift_factor"), float),
    "quorum": int,
}
_EXPECTED = {"drift_factor": "a fraction from 0 to 0.5", "quorum": "a whole number"}
_FLAGS = {"fencing", "strict_restart"}
_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
ENVIRONMENT = (*sorted(_NUMBERS), *sorted(_FLAGS), "namespace", "owner")


def _text(environ: Mapping[str, str], variable: str) -> str:
    text = environ.get(variable, "")
    if not isinstance(text, str):
        raise ConfigurationError(f"{variable} must be a str, got {short_repr(text)}")
    return text.strip()


def _nodes(environ: Mapping[str, str]) -> list[str]:
    # The value may have line breaks and comments, because it often comes from a file, such as a Kubernetes secret.
    lines = [line for line in _text(environ, "REDLOCK_NODES").splitlines() if not line.lstrip().startswith("#")]
    nodes = [url.strip() for url in ",".join(lines).split(",") if url.strip()]
    if not nodes:
        msg = (
            "REDLOCK_NODES is not set. Set it to the nodes' URLs, separated by commas or line breaks, such as "
            "REDLOCK_NODES=redis://10.0.0.1:6379,redis://10.0.0.2:6379,redis://10.0.0.3:6379, "
            "or run `redlock-async up` to start servers on this machine"
        )
        raise ConfigurationError(msg)
    for number, url in enumerate(nodes, 1):
        if url.count("://") > 1 or any(map(str.isspace, url)):
            raise ConfigurationError(
                f"REDLOCK_NODES entry {number} contains several URLs. Separate them with commas or line breaks"
            )
    return nodes


def from_environment(environ: Mapping[str, str]) -> tuple[list[str], dict[str, Any]]:
    """Return the nodes and options in REDLOCK_... variables; an empty variable counts as not set.

    Raise ConfigurationError for a missing or malformed variable.
    """
    if not isinstance(environ, Mapping):
        raise ConfigurationError(f"the environment must be a mapping of names to values, got {short_repr(environ)}")
    nodes = _nodes(environ)
    given: dict[str, Any] = {}
    for option in ENVIRONMENT:
        variable = f"REDLOCK_{option.upper()}"
        text = _text(environ, variable)
        if not text:
            continue
        if option in _FLAGS:
            if text.lower() not in _WORDS:
                msg = f"{variable} must be true or false, got {short_repr(text)}"
                raise ConfigurationError(msg)
            given[option] = _WORDS[text.lower()]
        elif option == "wait" and text.lower() in {"none", "forever"}:
            given[option] = None
        elif option in _NUMBERS:
            try:
                given[option] = _NUMBERS[option](text)
            except ValueError:
                expected = _EXPECTED.get(option, "a number of seconds")
                raise ConfigurationError(f"{variable} must be {expected}, got {short_repr(text)}") from None
        else:
            given[option] = text
    return nodes, given
