"""Where ranks stood while the job hung: live stacks in every format people have.

`read` reads a file of them, one module per format; nothing later asks which it was. `in_logs` finds those that stand in
a log. `shapes` says what holds a stack, `clusters` which ranks stand at the same place.
"""
