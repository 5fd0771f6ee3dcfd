"""Configs and commands, edited byte by byte."""

from advisor.config.document import (
    Document as Document,
    masked_diff as masked_diff,
    of_command as of_command,
    parse as parse,
    read as read,
    with_fields as with_fields,
)
from advisor.config.swap import (
    require_one_name as require_one_name,
    write_atomic as write_atomic,
)
