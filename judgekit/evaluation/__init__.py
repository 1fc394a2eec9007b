"""How well judgekit does, measured on labelled data: rankings and confidences."""
