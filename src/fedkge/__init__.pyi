from fedkge.errors import ConfigError as ConfigError
from fedkge.errors import DataError as DataError
from fedkge.errors import DataWarning as DataWarning
from fedkge.errors import FedkgeError as FedkgeError
from fedkge.front.asking import Pack as Pack
from fedkge.front.learning import compare as compare
from fedkge.front.learning import train as train
from fedkge.front.naming import available as available
from fedkge.front.naming import explain as explain
from fedkge.front.run import Comparison as Comparison
from fedkge.front.run import Run as Run
from fedkge.front.run import open_run as open_run
from fedkge.front.sites import Sites as Sites
from fedkge.front.sites import load as load
from fedkge.graphs.graph import Graph as Graph

__version__: str
