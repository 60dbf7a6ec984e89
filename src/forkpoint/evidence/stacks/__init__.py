"""Where ranks stood while the job hung: live stacks in every format people have. Formats have a module each."""
