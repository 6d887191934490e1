import time

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Toy(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        ids = torch.randint(5, 100, (32,), generator=generator)
        return {"input_ids": ids, "labels": torch.tensor(index % 2)}


class Clock(TrainerCallback):
    ended = ()

    def on_step_end(self, *_, **__):
        self.ended += (time.perf_counter(),)


def main():
    config = BertConfig(
        vocab_size=100,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
    )
    training_args = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        max_steps=120,
        per_device_train_batch_size=8,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    clock = Clock()
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=training_args,
        train_dataset=Toy(),
        callbacks=[clock],
    )
    trainer.train()
    periods = [b - a for a, b in zip(clock.ended, clock.ended[1:])]
    print("clock", training_args.process_index, *periods, flush=True)


if __name__ == "__main__":
    main()
