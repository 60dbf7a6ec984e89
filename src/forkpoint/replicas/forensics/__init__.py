"""Records each rank's gradients before reduction, for the last steps, and writes them to a file when something goes wrong.

    rec = forensics.record(model)
    for x, y, indices in loader:
        loss = cross_entropy(model(x), y)
        rec.before_reduction(loss=loss, data=indices)
        loss.backward()
        optimizer.step()
        rec.step()

See docs/forensics.md for what it costs and what it cannot see.
"""

from forkpoint.replicas.forensics.recorder import Recorder, record

__all__ = ["Recorder", "record"]
