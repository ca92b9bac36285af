"""What sends the jobs, as a web process would: prints as JSON who ran them, and what became of the others."""

import json

import celery_jobs

from redlock_async.blocking import redlock


def main():
    """A name that all want; a lease handed on; a job whose time is over while it waits for a lock."""
    sent = [celery_jobs.import_user.delay(7) for _ in range(20)]
    ran_in = [job.get(timeout=40) for job in sent]
    lease = redlock("video:7", ttl=30).acquire()
    encoded = celery_jobs.encode.delay("7", lease.detach()).get(timeout=30)
    with redlock("held"):
        waiting = celery_jobs.waits_for_too_long.delay().get(timeout=30)
    print(json.dumps({"ran_in": ran_in, "fences": [lease.fencing_token, encoded], "waiting": waiting}))


if __name__ == "__main__":
    main()
