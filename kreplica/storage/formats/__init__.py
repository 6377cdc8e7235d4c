"""On-disk formats that other modules share: checkpoints, file names, batch headers, leader epochs."""
