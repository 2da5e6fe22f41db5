"""The parity task (paper §3.1 and app. B; spec/tasks.md): is the number of ones odd?"""

from tasks.parity.settings import ParityConfig
from tasks.parity.task import Parity

__all__ = ["Parity", "ParityConfig"]
