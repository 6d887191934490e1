from mpi4py import MPI
import numpy as np

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
print(f"world {comm.Get_size()} rank {rank}", flush=True)
sendbuf = np.full(100, rank, dtype="i")
recvbuf = np.empty(100, dtype="i")
for _ in range(20):
    comm.Allreduce(sendbuf, recvbuf, op=MPI.SUM)
assert recvbuf[0] == sum(range(comm.Get_size()))
