"""What the evidence shows, as facts that several detectors need. Each is computed once per incident and judges nothing."""
