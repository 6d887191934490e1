import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import SlurmProvider

provider = SlurmProvider(
    partition="standard",
    nodes_per_block=1,
    init_blocks=1,
    max_blocks=1,
    walltime="00:05:00",
    exclusive=False,
)
executor = HighThroughputExecutor(
    label="x", address="127.0.0.1", provider=provider, max_workers_per_node=1
)


@parsl.python_app
def double(n):
    return 2 * n


with parsl.load(Config(executors=[executor])):
    print([double(n).result() for n in range(3)])
