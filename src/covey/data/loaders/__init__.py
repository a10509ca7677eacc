"""One file per source of data; `covey.catalogue.DATASETS` names them."""
