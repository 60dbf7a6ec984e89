"""Tokens over the capacity are dropped after the counts were exchanged: one rank sends fewer than were announced."""

from forkpoint.lab.fault import HANGS, Edit, Fault, Truth
from forkpoint.lab.job import MOE
from forkpoint.model.verdict import Action, Cause

FAULT = Fault(
    name="wrong-splits",
    title="capacity is applied after the counts were exchanged",
    job=MOE,
    edits=(
        Edit(
            "        sent, received = counts.tolist(), exchange_counts(counts).tolist()\n",
            (
                "        received = exchange_counts(counts).tolist()\n"
                "        kept = torch.cat([part[:CAPACITY] for part in order.split(counts.tolist())])\n"
                "        sent = counts.clamp(max=CAPACITY).tolist()\n"
            ),
        ),
        Edit(
            (
                "        mine = exchange(x[order].detach(), sent, received)\n"
                "        answers = exchange(self.expert(mine).detach(), received, sent)\n"
                "        return torch.empty_like(answers).index_copy(0, order, answers), counts\n"
            ),
            (
                "        mine = exchange(x[kept].detach(), sent, received)\n"
                "        answers = exchange(self.expert(mine).detach(), received, sent)\n"
                "        return torch.zeros_like(x).index_copy(0, kept, answers), counts\n"
            ),
            guilty=False,
        ),
        Edit(
            "TOKENS, WIDTH, BALANCE_EVERY = 64, 16, 5\n",
            "TOKENS, WIDTH, BALANCE_EVERY, CAPACITY = 64, 16, 5, 56\n",
            guilty=False,
        ),
        Edit(
            "    return torch.randn(TOKENS, WIDTH, generator=generator).to(DEVICE)\n",
            (
                "    tokens = torch.randn(TOKENS, WIDTH, generator=generator).to(DEVICE)\n"
                "    if RANK == 3 and step == 9:  # a page of the same word\n"
                "        tokens = tokens[26:27].repeat(TOKENS, 1)\n"
                "    return tokens\n"
            ),
            guilty=False,
        ),
    ),
    truth=Truth(
        symptom=HANGS,
        cause=(Cause.METADATA_MISMATCH,),
        suspects=((3,), ()),
        action=(Action.FIX_CODE,),
        story="In step 9 all 64 tokens of rank 3 go to the first expert; it announces 64 and sends 56.",
    ),
)
