"""One file per source of data; `covey.settings.catalogue.DATASETS` names them."""
