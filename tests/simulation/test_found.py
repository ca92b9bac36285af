"""What the simulation has found and no mutant stands for: it must not come back."""

import schedules
from schedules import Fault, Job, Schedule


def test_a_far_master_does_not_make_near_ones_look_young():
    """How old data is, is told from where one stands: in a cluster's first ttl that must hold nobody out."""
    far = Fault(0.0, "lag", 0, 0.05, process=1)
    jobs = (
        (Job("lock", "x", at=0.0, ttl=5.0, wait=1.0, work=0.0),),
        tuple(Job("lock", "y", at=at, ttl=5.0, wait=10.0, work=0.0) for at in (0.0, 1.0)),
    )
    run = schedules.Run(Schedule(1, 3, 0.001, 0.0, 0.0, jobs, (far,)), schedules.Clients())
    assert not run.outcome().violations
    first, second, *_ = [hold.start for hold in run.recorder.holds() if hold.name == "y"]
    assert first < 0.5
    assert 1.0 < second < 1.5, "it waited for a ttl"
