"""After Accelerate's quick tour: prepare, backward, gather_for_metrics, wait_for_everyone, save."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(60, 8), torch.randint(0, 2, (60,)))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    evaluation = DataLoader(data, batch_size=4)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, loader, evaluation, scheduler = accelerator.prepare(model, optimizer, loader, evaluation, scheduler)
    for epoch in range(2):
        model.train()
        for source, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(source), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        model.eval()
        right = 0
        for source, targets in evaluation:
            with torch.no_grad():
                predictions = model(source).argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, targets))
            right += (predictions == references).sum().item()
        accelerator.print(f"epoch {epoch}: {right}")
    accelerator.wait_for_everyone()
    accelerator.save_model(model, "saved")
    accelerator.end_training()


main()
