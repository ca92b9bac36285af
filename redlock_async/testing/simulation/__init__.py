"""The unchanged library in simulated time, with simulated nodes that run its own Lua scripts."""

from redlock_async.testing.simulation._simulation import Simulation as Simulation
from redlock_async.testing.simulation._simulation import lan as lan
from redlock_async.testing.simulation._time import SimulationError as SimulationError

__all__ = ["Simulation", "SimulationError", "lan"]
