"""``python -m eagergrad`` is the command ``eagergrad``."""

import sys

from .cli import main

sys.exit(main())
