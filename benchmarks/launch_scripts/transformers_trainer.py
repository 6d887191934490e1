import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Toy(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        ids = torch.randint(5, 100, (16,), generator=generator)
        return {"input_ids": ids, "labels": torch.tensor(index % 2)}


def main():
    config = BertConfig(
        vocab_size=100,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    training_args = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        max_steps=20,
        per_device_train_batch_size=4,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    print(f"world {training_args.world_size} rank {training_args.process_index}", flush=True)
    trainer = Trainer(
        model=BertForSequenceClassification(config), args=training_args, train_dataset=Toy()
    )
    trainer.train()


if __name__ == "__main__":
    main()
