"""The domain's nouns: facts we made, frozen, with units in their names.

`None` always means "not measured" or "not known", and is never written as 0.
"""

from advisor.model.machines import *
from advisor.model.runs import *
from advisor.model.settings import *
from advisor.model.trials import *
from advisor.model.work import *
