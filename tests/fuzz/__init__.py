"""Files that attack the readers: texts whose reading must grow linearly (`growth`), and random mutations of good ones."""
