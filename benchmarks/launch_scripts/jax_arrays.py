import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
print(f"world {jax.process_count()} rank {jax.process_index()}", flush=True)
mesh = jax.make_mesh((jax.device_count(),), ("data",))
sharding = NamedSharding(mesh, P("data"))
local = jnp.full((4, 8), float(jax.process_index()))
batch = jax.make_array_from_process_local_data(sharding, local)


@jax.jit
def update(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)


w = jax.device_put(jnp.ones((8,)), NamedSharding(mesh, P()))
for _ in range(20):
    w = update(w, batch)
multihost_utils.sync_global_devices("end")
