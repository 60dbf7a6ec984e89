"""Evaluation of a small classifier on a sharded test set."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from evaluate import batches, gather_predictions
from trace_file import write_trace

log = logging.getLogger("eval")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(64, 10).to(device)
    predictions = []
    with torch.no_grad():
        for x in batches(rank, device):
            predictions.append(gather_predictions(model(x).argmax(-1), world))
    predictions = torch.cat(predictions)
    histogram = torch.bincount(predictions.clamp(0, 9), minlength=10)
    dist.all_reduce(histogram, op=dist.ReduceOp.MAX)
    log.info("%d predictions, histogram %s", len(predictions), histogram.tolist())
    write_trace(rank, backend)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
