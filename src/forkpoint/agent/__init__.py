"""A language model examines a case under the engine's control.

The engine makes the verdict first, without a model, and nothing here can change it. The model sees facts with ids, asks for
more through read-only tools, and hands in a hypothesis: typed claims, which may disagree with the verdict. The engine checks
every claim. The report prints both answers side by side with the evidence for each, and marks the model's own words as
opinion.

    open_case -> Case --explain(model)--> Explanation --report-->

`case.py`: the case, facts, what a tool and a claim are. `tools/`, `claims/`: one file per subject. `workflow.py`: the phases
and the loop. `model.py`: the interface of a model. `transcript.py`: the recording. Extras: `agent` (any model), `mcp` (any
agent).
"""
