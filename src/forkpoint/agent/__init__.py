"""A model walks the workflow, the engine keeps the reins.

The verdict is made first and without a model, and nothing here can change it. A model sees facts with ids, asks for more
through read-only tools, and hands in a hypothesis of typed claims, which may be another answer than the verdict's. Every claim
is checked by asking the engine again; both answers are printed side by side with what speaks for each, and what was the
model's own wording is labelled as opinion.

    open_case -> Case --explain(model)--> Explanation --report-->

`case.py` the case; `fact.py` what was shown; `tools/`, `claims/` one per file; `phases.py` the order; `workflow.py` the
loop; `model.py` the one method a model has; `transcript.py` what was said. Extras: `agent` (any model), `mcp` (any agent).
"""
