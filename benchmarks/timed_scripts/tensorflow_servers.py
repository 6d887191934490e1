import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["GRPC_FAIL_FAST"] = "use_caller"
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        start=True,
    )
    server.join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    w = tf.Variable(tf.zeros((512, 512)))


@tf.function
def step_fn():
    def replica_fn():
        x = tf.random.normal((256, 512))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w - x) ** 2)
        w.assign_sub(0.01 * tape.gradient(loss, w))
        return loss

    return strategy.run(replica_fn)


coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
periods = []
for _ in range(25):
    began = time.perf_counter()
    for _ in range(10):
        coordinator.schedule(step_fn)
    coordinator.join()
    periods += [(time.perf_counter() - began) / 10] * 10
print("clock", 0, *periods[10:], flush=True)
