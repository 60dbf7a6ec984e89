"""Mistakes that show only on a bad day, each beside its careful twin: a thread that communicates beside the main loop, a
message that may not be there yet, data that each rank filters, pads, selects or judges by itself.
"""

import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def exchange(group):
    dist.all_reduce(torch.ones(2), group=group)


def beside_the_loop():
    thread = threading.Thread(target=exchange, args=(None,))
    thread.start()  # late in the same group
    time.sleep(0.5)
    dist.all_reduce(torch.ones(3))
    thread.join()


def in_a_group_of_its_own():
    group = dist.new_group()
    thread = threading.Thread(target=exchange, args=(group,))
    thread.start()  # late in its own group
    dist.all_reduce(torch.ones(3))
    thread.join()


def announce(store, key):
    if dist.get_rank() == 0:
        store.set(key, "1")
    dist.barrier()


def acted_on_alone(store):
    announce(store, "a")
    if store.check(["a"]):  # asked alone
        dist.all_reduce(torch.ones(4))


def acted_on_together(store):
    announce(store, "b")
    seen = torch.tensor([int(store.check(["b"]))])  # asked by all
    dist.all_reduce(seen, dist.ReduceOp.MIN)
    if seen.item():
        dist.all_reduce(torch.ones(5))


def documents():
    return [f"text {dist.get_rank()} {number}" for number in range(20)]


def gathered_as_if_equal():
    kept = [text for text in documents() if len(text) < 40]  # filtered and gathered
    rows = torch.zeros(len(kept), 2)
    dist.all_gather([torch.zeros_like(rows) for _ in range(2)], rows)


def gathered_by_size():
    kept = [text for text in documents() if len(text) < 40]  # filtered and counted
    count = torch.tensor([len(kept)])
    dist.all_reduce(count, dist.ReduceOp.MAX)
    rows = torch.zeros(int(count), 2)
    dist.all_gather([torch.zeros_like(rows) for _ in range(2)], rows)


def rows():
    for number, text in enumerate(documents()):
        if len(text) < 40:
            yield torch.tensor([float(number), float(dist.get_rank())])


def one_call_for_each():
    for row in rows():  # one call for each
        dist.all_reduce(row)


def as_many_calls_as_agreed():
    mine = list(rows())  # counted first
    count = torch.tensor([len(mine)])
    dist.all_reduce(count, dist.ReduceOp.MIN)
    for row in mine[: int(count)]:
        dist.all_reduce(row)


class Texts(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.ones(3 if index == 7 else 9)


def collate(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def padded_alone():
    sampler = DistributedSampler(Texts(), shuffle=False)
    for batch in DataLoader(Texts(), batch_size=2, collate_fn=collate, sampler=sampler):  # padded alone
        dist.all_gather([torch.zeros_like(batch) for _ in range(2)], batch)


def own_values():
    return torch.arange(8.0) + dist.get_rank()


def left_out_alone():
    values = own_values()
    chosen = values[values > 3]  # selected alone
    if chosen.numel() > 0:
        dist.all_reduce(chosen.sum())


def counted_by_all():
    values = own_values()
    chosen = values[values > 3]  # selected by all
    dist.all_reduce(chosen.sum())


@torch.no_grad()
def is_better():
    predicted = own_values().numpy()  # judged alone
    if predicted[0] < predicted[-1]:
        dist.all_reduce(torch.ones(6))


@torch.no_grad()
def is_better_for_all():
    predicted = own_values().numpy()  # judged by all
    better = torch.tensor(float(predicted[0] < predicted[-1]))
    dist.all_reduce(better, dist.ReduceOp.MIN)
    if better.item():
        dist.all_reduce(torch.ones(7))


def main():
    dist.init_process_group("gloo")
    store = dist.PrefixStore("twins", dist.distributed_c10d._get_default_store())
    beside_the_loop()
    in_a_group_of_its_own()
    acted_on_alone(store)
    acted_on_together(store)
    gathered_as_if_equal()
    gathered_by_size()
    one_call_for_each()
    as_many_calls_as_agreed()
    padded_alone()
    left_out_alone()
    counted_by_all()
    is_better()
    is_better_for_all()
    dist.barrier()
    dist.destroy_process_group()


main()
