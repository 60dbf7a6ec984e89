"""`forkpoint rehearse`: runs the user's own job on a few ranks and disturbs one of them. Do all ranks react the same way?

    command --launch--> Program --calm--> Calm --plan--> Trials --trial--> Results --render--> text|json|html|junit

`calm` runs the job once undisturbed and notes which rank-local things it uses. `plan` asks every perturbation
(`perturbations/`, one file each) what it could do to a job like that. `trial` runs the job again with one rank disturbed;
the guard inside the ranks reports within seconds when they diverge, and the engine names the line. `inside/` runs in
the ranks; nothing else here imports torch.
"""
