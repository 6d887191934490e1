import sys

from dask.distributed import Client
from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    cluster = SLURMCluster(
        cores=1,
        memory="500MB",
        walltime="00:05:00",
        processes=1,
        interface="lo",
        python=sys.executable,
        nanny=False,
        dashboard_address=None,
    )
    cluster.scale(2)
    client = Client(cluster)
    client.wait_for_workers(2, timeout=90)
    print(sum(client.gather(client.map(lambda x: x * x, range(10)))))
    client.close()
    cluster.close()
