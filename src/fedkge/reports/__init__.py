"""What happened: tables and one HTML page, made from run folders alone."""
