"""What runs in the ranks of a calm run or a trial, started by the same autoload that starts the guard."""
