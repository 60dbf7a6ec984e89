"""Reports of the doctor, one file per output."""
