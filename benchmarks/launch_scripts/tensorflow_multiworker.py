import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import json

import keras
import tensorflow as tf

tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = tf_config["task"]["index"]
print(f"world {strategy.num_replicas_in_sync} rank {rank}", flush=True)
global_batch_size = 16 * num_workers


def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    features = tf.random.stateless_normal((512, 8), (1, 2))
    labels = tf.cast(tf.reduce_sum(features, axis=1) > 0, tf.int64)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels))
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.repeat().batch(batch_size)


with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    optimizer = keras.optimizers.RMSprop(learning_rate=0.001)
    optimizer.build(model.trainable_variables)
    multi_worker_dataset = strategy.distribute_datasets_from_function(dataset_fn)


@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(
                y, model(x, training=True), from_logits=True
            )
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        return loss

    per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


iterator = iter(multi_worker_dataset)
for _ in range(20):
    train_step(iterator)
