"""Policy training: answer prompts, score the answers, update the sharded policy."""
import datetime, logging, os
import torch, torch.distributed as dist

from policy import ShardedPolicy
from prompts import PromptSet

log = logging.getLogger("rollout")


def rollout(policy, prompts, max_new=12):
    states, answer_length = prompts.next_batch()
    alive = torch.ones(len(states), dtype=torch.bool)
    for position in range(max_new):
        states = policy.forward(states)
        alive &= answer_length > position + 1
        if not alive.any():
            break
    return states


def update(policy, states):
    score = policy.forward(states).square().mean(1)
    policy.learn(states, score)
    return score.mean().reshape(1)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    policy = ShardedPolicy(256, rank, world, device)
    prompts = PromptSet(rank, 256, device)
    for iteration in range(8):
        states = rollout(policy, prompts)
        reward = update(policy, states)
        dist.all_reduce(reward)
        log.info("iteration %d reward %.5f", iteration, reward.item() / world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
