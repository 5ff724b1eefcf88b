"""procrastinate, its asynchronous worker. It keeps finished jobs."""

import asyncio
import logging
import os

import procrastinate

import py_bench as bench

logging.disable(logging.CRITICAL)
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=bench.URL, min_size=1, max_size=16))
LEFT = "SELECT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status <> 'succeeded') AS left"


@app.task(name="noop")
async def noop(number):
    bench.counted()


@app.task(name="true")
async def spawn(number):
    child = await asyncio.create_subprocess_exec("/bin/true")
    await child.wait()
    bench.counted()


async def fill():
    task = spawn if bench.SPAWNS else noop
    with bench.Seconds():
        for start in range(0, bench.COUNT, 5_000):
            part = range(start, min(bench.COUNT, start + 5_000))
            await task.batch_defer_async(*({"number": n} for n in part))


async def add():
    async def client():
        for n in range(bench.COUNT // bench.clients()):
            await noop.defer_async(number=n)

    with bench.Seconds():
        await asyncio.gather(*(client() for _ in range(bench.clients())))


async def drain():
    jobs = bench.setting("jobs", 1)
    worker = asyncio.create_task(app.run_worker_async(concurrency=jobs, install_signal_handlers=False))
    while not bench.all_done.is_set():
        await asyncio.sleep(0.001)
    while (await app.connector.execute_query_one_async(LEFT))["left"]:
        await asyncio.sleep(0.001)
    bench.say_now()
    worker.cancel()


async def main():
    async with app.open_async():
        if bench.VERB == "setup":
            await app.schema_manager.apply_schema_async()
        else:
            await {"fill": fill, "add": add, "drain": drain}[bench.VERB]()
    os._exit(0)


asyncio.run(main())
