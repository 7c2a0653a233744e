"""Laws against patch attacks: a view keeps one or several regions of a picture and hides the rest."""
