"""`forkpoint rehearse`: runs the user's own job on a few ranks and disturbs one of them. Do all ranks react the same way?

    command --run--> calm run --rehearsal--> plan --trial--> results --render--> text|json|html|junit

`rehearsal` runs the job once undisturbed and notes which rank-local things it uses; then every perturbation (`perturbations/`)
says what it could do to a job like that. `trial` runs the job again with one rank disturbed; the guard inside the ranks reports
within seconds when they diverge, and the engine names the line. `inside/` runs in the ranks; nothing else here imports torch.
"""
