"""File formats that are cut along their records: HDF5, TFRecord, tar."""
