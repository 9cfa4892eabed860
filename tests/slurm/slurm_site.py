"""A study whose debug runs go to the test cluster."""

from cluster import PATIENCE_S, wait_until
from fleet import Fleet

from scalewright.orchestrator.config.resources import Profile, Resources, Retry
from scalewright.orchestrator.jobs.records import read_chunks
from scalewright.orchestrator.runs.run_files import read_run

RETRY = Retry()


class Site(Fleet):
    """A study whose runs go to the cluster."""

    cluster = None

    def on(
        self,
        node=None,
        *,
        n_cpus=1,
        pack=100,
        max_parallel=None,
        retry=RETRY,
        notify=None,
        at_once=1,
        time=None,
        **sbatch,
    ):
        """Submit everything that is to be done, optionally to one node."""
        place = {"nodelist": node} if node else {}
        profile = Profile(cpus=n_cpus, pack=pack, at_once=at_once, mem="200M", time=time, sbatch=place | sbatch)
        resources = Resources(profiles={"default": profile})
        return self.submit(executor="slurm", resources=resources, max_parallel=max_parallel, retry=retry, notify=notify)

    def job(self, pack="p0000"):
        chunk = next(one for one in read_chunks(self.study.jobs_dir, closed=True) if pack in one.packs)
        return chunk.job_of(pack)

    def until(self, *states, seconds=PATIENCE_S):
        wait_until(lambda: self.states() == list(states), seconds, f"{states} (now {self.states()})", 0.5)

    def attempts(self, index=0):
        return read_run(self.dir(index)).attempts

    def is_whole(self, index, n_steps):
        """Every step logged once, after the rewinds of resumed attempts."""
        return [step for step, _ in self.losses(index)] == list(range(1, n_steps + 1))

    def wait_for_step(self, index, step):
        wait_until(lambda: self.newest_step(index) >= step, PATIENCE_S, f"step {step}")

    def newest_step(self, index):
        return max((int(p.stem.split("-")[1]) for p in (self.dir(index) / "ckpt").glob("step-*")), default=0)
