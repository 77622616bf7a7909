"""HTML pages and cards: report, comparison, evaluation."""
