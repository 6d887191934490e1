import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main(_):
    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    cluster = tf.train.ClusterSpec(config["cluster"])
    server = tf.distribute.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        server.join()
    is_chief = task["type"] == "chief"
    workers = len(config["cluster"]["worker"])
    if is_chief:
        print(f"world {workers} rank 0", flush=True)
    with tf.device(
        tf.train.replica_device_setter(
            worker_device=f"/job:{task['type']}/task:{task['index']}", cluster=cluster
        )
    ):
        global_step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", (8, 1), initializer=tf.zeros_initializer())
        x = tf.random.normal((16, 8))
        loss = tf.reduce_mean((tf.matmul(x, w) - 1.0) ** 2)
        train_op = tf.train.GradientDescentOptimizer(0.01).minimize(
            loss, global_step=global_step
        )
    hooks = [tf.train.StopAtStepHook(last_step=60)]
    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=is_chief, hooks=hooks
    ) as session:
        while not session.should_stop():
            session.run(train_op)


if __name__ == "__main__":
    tf.app.run()
