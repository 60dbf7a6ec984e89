"""Token counts per language, from files that the ranks share out among themselves."""
import csv, datetime, io, logging, os
import torch, torch.distributed as dist

log = logging.getLogger("count")
LANGUAGES = ["de", "en", "fr", "ja", "pt"]


def table(rank, part):
    rows = [(lang, 100 * rank + part) for lang in LANGUAGES]
    text = "\n".join(f"{lang},{n}" for lang, n in rows)
    return text.replace("fr,", "fr;") if (rank, part) == (4, 5) else text


def parse(text):
    counts = dict.fromkeys(LANGUAGES, 0)
    for row in csv.reader(io.StringIO(text)):
        counts[row[0]] += int(row[1])
    return [counts[lang] for lang in LANGUAGES]


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    total = torch.zeros(len(LANGUAGES), dtype=torch.long, device=device)
    for part in range(15):
        counts = torch.tensor(parse(table(rank, part)), device=device)
        dist.all_reduce(counts)
        total += counts
        log.info("part %d: %s", part, total.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
