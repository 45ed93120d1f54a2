"""`python -m radial` is the `radial` command."""

import sys

from radial.cli import main

sys.exit(main())
