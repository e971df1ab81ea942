"""A durable queue with logins: a worker that fails gives a job back, a job that is done is confirmed: MTL.

python examples/job_queue.py
"""

import tempfile

from trunkline import mtl


def main() -> None:
    """Ada queues jobs; Bob does them, one of them at the second attempt. Contents survive a restart of the server."""
    with tempfile.TemporaryDirectory() as store:

        def server() -> mtl.Server:
            users = {"ada": "sesame", "bob": "open"}
            return mtl.Server(bind="tcp://127.0.0.1:*", users=users, profiles="queue", resources="jobs", durable=store)

        with server() as serving, mtl.Client(connect=serving.endpoints, user="ada", password="sesame") as ada:
            with ada.writer("jobs") as writer:
                for job in ("fit", "calibrate", "plot"):
                    writer.send(job.encode(), properties={"priority": 3})
                writer.flush(timeout_s=10)  # all of them are on disk now

        with server() as serving, mtl.Client(connect=serving.endpoints, user="bob", password="open") as bob:
            with bob.reader("jobs", window=1) as reader:
                reader.summon("jobs")
                done: list[str] = []
                failed = False
                while len(done) < 3:
                    content = reader.receive(timeout_s=10)
                    job = bytes(content.body).decode()
                    if job == "calibrate" and not failed:
                        failed = True
                        content.reject(recycle=True)  # back to its place in the queue
                        print(job, "failed")
                        continue
                    content.confirm()  # gone for good
                    done.append(job)
                    print(job, "done")


if __name__ == "__main__":
    main()
