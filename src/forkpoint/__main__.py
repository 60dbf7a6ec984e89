import sys

from forkpoint.cli import main

sys.exit(main())
