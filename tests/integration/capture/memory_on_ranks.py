"""A rank that trains a sharded toy (FSDP2) and records memory: `python -m tests.integration.capture.memory_on_ranks LOGDIR RANK RANKS MEETING`."""

from __future__ import annotations

import json
import sys
from typing import Any


def main(logdir: str, rank: int, ranks: int, meeting: str) -> None:
    import torch
    from torch import distributed
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    import tb_sol_plugin as sol
    from tb_sol_plugin.capture import record_base_memory
    from tests.support.training_loops import plain, tokens_of_toy, toy

    torch.set_num_threads(1)
    first = record_base_memory("start")
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    second = record_base_memory("process group")
    model = toy()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    said: dict[str, Any] = {"problems": [first.problem, second.problem], "ranks": [first.rank, second.rank]}
    with sol.capture(logdir, model=model, every_n_steps=0, memory=True, optimizer=optimizer, console=False, tensorboard=False) as tracker:
        plain(model, optimizer, tracker)
        tracker.step()
        tokens = tokens_of_toy()
        torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten()).backward()
        record = tracker.record_memory("gradients")
        said["bytes"] = {p.category: record.bytes_of(p.category) for p in record.parts}
        said["views"] = {p.category: record.walk.view_bytes_of(p.category) for p in record.parts} if record.walk else {}
        said["local"] = sum(p.to_local().nbytes for p in model.parameters())
        said["left_out"] = record.walk.left_out if record.walk else None
        tracker.step()
    print("said " + json.dumps(said))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
